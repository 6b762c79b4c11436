#!/bin/sh
# parity_qwen.sh -- cases that diffusers and PEFT made, on both sides.
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 5
agree tests/parity/made_qwen.lua
