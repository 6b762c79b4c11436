# decoder.sh -- models/dalle2/decoder.lua under every plan of lib.sh.
. "$(dirname "$0")/lib.sh"
plans decoder dalle2/decoder -D size=tiny -D batch=16
