#!/bin/sh
# reject.sh -- models that dpc compile must refuse: exit 1, file:line, what is
# wrong with both values; in a bounded time.
. "$(dirname "$0")/lib.sh"

# refuse NAME PATTERN...: the model on stdin.
refuse() {
    name=$1; shift
    cat > m.lua
    t=$(now)
    run "$dpc" compile m.lua -o m.bin --lua-limit 1e8
    exits 1 "$name" "$@"
    t=$(since "$t")
    holds "$t < 20 * ${SLOW:-1}" || not_ok "$name in 20 s" "$t s"
    test ! -e m.bin || not_ok "$name leaves no binary" "there is one"
}

refuse "a shape error" 'm.lua:4: error: dot.*(16.*12|12.*16)' <<'END'
local function train()
  local x = dpc.input("x", {4, 16}, "f32")
  local w = dpc.param("w", {12, 8})
  local y = x:dot(w, "bk,kn->bn")
  return { loss = y:move("bn->") }
end
return { name = "m", entries = { train = train } }
END
refuse "a shape error inside nn.lua names the user's line" 'm.lua:4: error: ' <<'END'
local nn = require "nn"
local function train()
  local x = dpc.input("x", {4, 16}, "f32")
  local y = nn.linear("l", x, 8) + nn.linear("k", x, 9)
  return { loss = nn.mean(y) }
end
return { name = "m", entries = { train = train } }
END
refuse "an unknown op" 'm.lua:3: error: sigmod: .*"sigmoid"' <<'END'
local function train()
  local x = dpc.input("x", {4}, "f32")
  return { loss = x:sigmod():move("b->") }
end
return { name = "m", entries = { train = train } }
END
refuse "an infinite loop" 'm.lua:1: error: .*instructions.*--lua-limit' <<'END'
while true do end
END
refuse "a memory bomb" 'm.lua:2: error: .*512 MiB of memory; --lua-memory' <<'END'
local t = {}
for i = 1, 1e9 do t[i] = ("x"):rep(1 << 20) .. i end
END
refuse "a constant of 1e12 elements" 'm.lua:2: error: ' <<'END'
local function train()
  local x = dpc.const(1, {1000000, 1000000})
  return { loss = x:move("ab->") }
end
return { name = "m", entries = { train = train } }
END
refuse "Lua that does not parse" 'm.lua:2: error: ' <<'END'
local x = 1
local y = = 2
END
refuse "a module that is not there" 'm.lua:1: error: require: no "no_such.lua"' <<'END'
require "no_such"
END
cat > m.lua <<'END'
local function train()
  local x = dpc.input("x", {6, 4}, "f32")
  return { loss = x:move("bk->") }
end
return { name = "m", entries = { train = train } }
END
run "$dpc" compile m.lua -o m.bin --rnaks 4
exits 2 "an unknown option" 'no option --rnaks; did you mean --ranks'
run "$dpc" compile none.lua
exits 1 "a model that is not there" 'none.lua: error: cannot be opened'
run env CC=no-such-cc "$dpc" compile m.lua -o m.bin --no-cache
exits 5 "no C compiler" 'no-such-cc'
mkdir tmp
run env CC=no-such-cc TMPDIR="$work/tmp" "$dpc" compile m.lua -o m.bin --no-cache
if [ -z "$(ls tmp)" ]; then ok "a failed compile leaves no folder behind"
else not_ok "a failed compile leaves no folder behind" "$(ls tmp)"; fi
mknod device c 1 3 2> /dev/null || mkfifo device
run "$dpc" compile m.lua -o device
exits 5 "a binary in place of a device" 'device: error: cannot write the binary: File exists'
if [ -e device ] && [ ! -f device ]; then ok "the device is left alone"
else not_ok "the device is left alone" "$(ls -l device)"; fi
run "$dpc" compile m.lua -o /proc/m.bin
exits 5 "a binary that cannot be written" '/proc/m.bin'
