# decoder.sh -- models/dalle2/decoder.lua under every plan of lib.sh, and with
# its pictures' rows in parts.
. "$(dirname "$0")/lib.sh"
plans="$plans
2 2 spatial
4 1 spatial -P sp=2"
plans decoder dalle2/decoder -D size=tiny -D batch=16
