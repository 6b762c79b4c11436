-- dalle2_declared.lua -- says the options of the constructors of
-- models/dalle2, for tests/system/options.sh.
for constructor, module in pairs{
  DiffusionPriorNetwork = "prior_net", DiffusionPrior = "prior",
  Unet = "unet", Decoder = "decoder", CLIP = "xclip", VQGanVAE = "vqgan",
} do
  for key in pairs(require("dalle2.full." .. module).declared) do
    print("option " .. constructor .. " " .. key)
  end
end
return { entries = { train = function() return { y = dpc.const(1) } end } }
