-- dpc check --config tests/error/lib/wrong.json %
for key in pairs(dpc.config) do
  if key ~= "depth" then
    dpc.fail(("no key \"%s\"; did you mean \"%s\"?")
             :format(key, dpc.near(key, { "dim", "depth" })),
             dpc.where(dpc.config, key))
  end
end
