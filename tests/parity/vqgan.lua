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

local vit = { dim = 12, image_size = 16, layers = 2, use_vgg_and_gan = false,
              vae_type = "vit", encdec_patch_size = 4, encdec_heads = 2,
              encdec_dim_head = 6, vq_codebook_dim = 12,
              vq_codebook_size = 10, vq_kmeans_init = false,
              vq_use_cosine_sim = false, l2_recon_loss = true }
local book = {
  ["vq._codebook.embed"] = { fill = "codebook" },
  ["vq._codebook.embed_avg"] = { fill = "codebook" },
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
  { name = "patches, codes by distance", part = "vqgan", options = vit,
    inputs = inputs, leaves = book,
    expect = { params = 10668, z = { sum = 9.52612, abs = .792984 },
               decode = { sum = 36.2018, abs = .208376 } } },
  { name = "patches, trained", part = "vqgan_train", options = vit,
    inputs = inputs, leaves = book,
    expect = {
      loss = .4065027, gradL2 = .453805,
      leaves = {
        ["vq._codebook.cluster_size"] = {
          first = { 2.2, .8, 0, 0, 1, 0, 1, 1.2, 0, .2 } },
        ["vq._codebook.embed"] = { first = { 1.00835, 2.04663, -.373641 },
                                   last = -3.03502 },
      } } },
}
