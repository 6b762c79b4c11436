-- vqgan.lua -- VQGanVAE of DALLE2-pytorch 1.15.6 without VGG and GAN.

local options = { dim = 8, image_size = 16, layers = 2,
                  use_vgg_and_gan = false, vq_codebook_dim = 6,
                  vq_codebook_size = 10, vq_kmeans_init = false,
                  encdec_resnet_groups = 4, encdec_attn_dim_head = 4,
                  encdec_attn_heads = 2 }
local inputs = { img = { 2, 3, 16, 16, fill = "img16" } }
local leaves = {
  ["vq._codebook.embed"] = { fill = "codebook", l2norm = true },
}

return {
  model = "models/dalle2/parts.lua",
  { name = "V1", part = "vqgan", options = options, inputs = inputs,
    leaves = leaves,
    expect = { params = 22765, z = { sum = 6.534588911 },
               decode = { sum = 60.94436401 },
               indices = { first = { 0, 0, 8, 6, 1, 1, 1, 1 } } } },
  { name = "V1 train", part = "vqgan_train", options = options,
    inputs = inputs, leaves = leaves,
    expect = {
      loss = .5029424205,
      leaves = {
        ["vq._codebook.cluster_size"] = {
          first = { 1, 2.4, .4, .6, 0, 0, .4, .4, 1, .2 } },
      } } },
}
