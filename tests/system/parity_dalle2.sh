#!/bin/sh
# parity_dalle2.sh -- cases that DALLE2-pytorch made, on both sides.
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 5
agree tests/parity/made_dalle2.lua
