# mmdit.sh -- models/qwen_image/fashion_base.lua under every plan of lib.sh.
. "$(dirname "$0")/lib.sh"
plans mmdit qwen_image/fashion_base -D batch=24
