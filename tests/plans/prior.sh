# prior.sh -- models/dalle2/prior.lua under every plan of lib.sh.
. "$(dirname "$0")/lib.sh"
plans prior dalle2/prior -D size=tiny -D batch=16
