# mmdit.sh -- models/qwen_image/fashion_base.lua under every plan of lib.sh.
# Its kernels run longer than it takes to make them a little better.
QUICK=-O1
. "$(dirname "$0")/lib.sh"
plans mmdit qwen_image/fashion_base -D batch=24 -D judged=false
