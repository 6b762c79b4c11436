-- dalle2_options.lua -- each option of each constructor of models/dalle2, at
-- another value than its default, as a case of its own; tests/system/
-- options.sh asks that its numbers differ from those of "GROUP base", or, where
-- the name ends in "ignored", that they do not; and that none is missing.
--

local NONE = {}

-- a with the keys of b; NONE takes one away.
local function with(a, b)
  local c = {}
  for key, value in pairs(a) do c[key] = value end
  for key, value in pairs(b or {}) do
    c[key] = value ~= NONE and value or nil
    if value == false then
      c[key] = false
    end
  end
  return c
end

local cases = { model = "models/dalle2/parts.lua" }

-- g: name, part, options, inputs, call, expect; change: option -> value, or
-- { value, more = other options, inputs = .. }; ignored: likewise.
local function group(g)
  local function add(name, options, inputs)
    cases[#cases + 1] = {
      name = g.name .. " " .. name, part = g.part, options = options,
      inputs = with(g.inputs, inputs), call = g.call, expect = g.expect }
  end
  local function changed(key, change)
    if type(change) ~= "table" or change.value == nil then
      change = { value = change }
    end
    local o = with(with(g.options, change.more), { [key] = change.value })
    return o, change.inputs
  end
  add("base", g.options)
  for key, change in pairs(g.change or {}) do
    add(key, changed(key, change))
  end
  for key, change in pairs(g.ignored or {}) do
    local o, inputs = changed(key, change)
    add(key .. " ignored", o, inputs)
  end
end

local out = { params = 0, out = { sum = 0, abs = 0 } }
local text = { 2, 4, 16, zero = { { 0, 3 }, { 1, 2 } } }

---- prior ----

local net = { dim = 16, depth = 1, num_timesteps = 30, max_text_len = 6,
              dim_head = 8, heads = 2 }
group({
  name = "net", part = "prior", options = net, call = { train = true },
  inputs = { image_embed = { 2, 16 }, text_embed = { 2, 16 },
             text_encodings = text, t = { 2, ints = { 3, 7 } },
             self_cond = { 2, 16 } },
  expect = out,
  change = {
    dim = { value = 20, inputs = { image_embed = { 2, 20 },
            text_embed = { 2, 20 }, text_encodings = { 2, 4, 20 },
            self_cond = { 2, 20 } } },
    depth = 2, num_timesteps = 40, max_text_len = 7, dim_head = 4, heads = 3,
    ff_mult = 2, norm_in = true, norm_out = false, attn_dropout = 0.5,
    ff_dropout = 0.5, final_proj = false, normformer = true,
    rotary_emb = false, num_time_embeds = 2, num_image_embeds = 2,
    num_text_embeds = 2, self_cond = true,
  } })

local prior = { net = net, image_embed_dim = 16, timesteps = 25 }
local prior_inputs = {
  image_embed = { 2, 16 }, text_embed = { 2, 16 }, text_encodings = text,
  t = { 2, ints = { 3, 7 } }, noise = { 2, 16 } }
group({
  name = "prior", part = "diffusion_prior", options = prior,
  inputs = prior_inputs, expect = { loss = 0 },
  change = {
    net = with(net, { depth = 2 }), timesteps = 30, cond_drop_prob = 0.5,
    text_cond_drop_prob = 1, image_cond_drop_prob = 1, loss_type = "l1",
    predict_x_start = false, predict_v = true, beta_schedule = "linear",
    condition_on_text_encodings = false, training_clamp_l2norm = true,
    image_embed_scale = 2,
    image_embed_dim = { value = 12, more = { net = with(net, { dim = 12 }) },
      inputs = { image_embed = { 2, 12 }, text_embed = { 2, 12 },
                 text_encodings = { 2, 4, 12 }, noise = { 2, 12 } } },
  },
  -- CLIP's matter: with embeddings given, nothing is read of them.
  ignored = { image_size = 8, image_channels = 1, clip = { make = "openai" },
              clip_adapter_overrides = { image_size = 8 } } })
group({
  name = "prior_sample", part = "sample", options = with(prior, {
    net = with(net, { depth = 1 }) }),
  inputs = { text_embed = { 2, 16 }, text_encodings = text },
  expect = { out = { sum = 0, abs = 0 } },
  change = { sample_timesteps = 5, sampling_clamp_l2norm = true,
             sampling_final_clamp_l2norm = true,
             init_image_embed_l2norm = true } })

---- U-Net ----

local unet = { dim = 8, image_embed_dim = 12, cond_dim = 10,
               dim_mults = { 1, 2 }, attn_dim_head = 4, attn_heads = 2,
               resnet_groups = 4, num_resnet_blocks = 1,
               cond_on_image_embeds = true, cond_on_text_encodings = true,
               text_embed_dim = 16, max_text_len = 6 }
local picture = { 2, 3, 8, 8 }
local level = { 2, ints = { 200, 450 } }
group({
  name = "unet", part = "unet", options = unet, expect = out,
  inputs = { x = picture, image_embed = { 2, 12 }, text_encodings = text,
             t = { 2, ints = { 3, 7 } } },
  change = {
    dim = 12, image_embed_dim = { value = 14,
                                  inputs = { image_embed = { 2, 14 } } },
    text_embed_dim = { value = 9, inputs = { text_encodings = { 2, 4, 9 } } },
    cond_dim = 11, num_image_tokens = 3, num_time_tokens = 3,
    dim_mults = { value = { 1, 3 } },
    channels = { value = 1, inputs = { x = { 2, 1, 8, 8 } } },
    channels_out = 6, self_attn = true, lowres_cond = { value = true,
      inputs = { lowres_cond_img = picture } },
    lowres_noise_cond = { value = true,
                          inputs = { lowres_noise_level = level } },
    self_cond = true, sparse_attn = true, cosine_sim_cross_attn = true,
    cosine_sim_self_attn = true, attn_dim_head = 6, attn_heads = 3,
    cond_on_text_encodings = false, max_text_len = 7,
    cond_on_image_embeds = false, add_image_embeds_to_time = false,
    resnet_groups = 2, resnet_weight_standardization = true,
    num_resnet_blocks = 2, init_cross_embed = false,
    init_cross_embed_kernel_sizes = { value = { 3, 5 } },
    cross_embed_downsample = true, memory_efficient = true,
    scale_skip_connection = true, pixel_shuffle_upsample = false,
    final_conv_kernel_size = 3, combine_upsample_fmaps = true,
  },
  -- Taken and unused by the original; recomputing changes no number; another
  -- init_dim is an error, tests/error.
  ignored = { attend_at_middle = false, out_dim = 5,
              checkpoint_during_training = true, init_dim = 8 } })
group({
  name = "unet_init", part = "unet", expect = out,
  options = with(unet, { init_cross_embed = false }),
  inputs = { x = picture, image_embed = { 2, 12 }, text_encodings = text,
             t = { 2, ints = { 3, 7 } } },
  change = { init_conv_kernel_size = 5 } })
group({
  name = "unet_cross", part = "unet", expect = out,
  options = with(unet, { cross_embed_downsample = true }),
  inputs = { x = picture, image_embed = { 2, 12 }, text_encodings = text,
             t = { 2, ints = { 3, 7 } } },
  change = { cross_embed_downsample_kernel_sizes = { value = { 2, 4, 6 } } } })

---- decoder ----

local small = with(unet, { cond_on_image_embeds = false,
                           cond_on_text_encodings = false })
local decoder = { unet = small, image_sizes = { 8 }, timesteps = 30,
                  image_cond_drop_prob = 0, text_cond_drop_prob = 0 }
local training = {
  image = { 2, 3, 8, 8, fill = "img", scale = .5, add = .5 },
  image_embed = { 2, 12 }, noise = picture, t = { 2, ints = { 0, 17 } } }
local reading = with(small, { cond_on_text_encodings = true })
group({
  name = "decoder", part = "decoder", options = decoder, inputs = training,
  expect = { loss = 0 },
  change = {
    unet = with(small, { attn_heads = 3 }),
    timesteps = 40, image_cond_drop_prob = 1, loss_type = "huber",
    beta_schedule = "sigmoid", predict_x_start = true, predict_v = true,
    learned_variance = false, learned_variance_constrain_frac = true,
    vb_loss_weight = 0.1, unconditional = true, auto_normalize_img = false,
    p2_loss_weight_gamma = 1,
    text_cond_drop_prob = { value = 1, more = { unet = reading },
                            inputs = { text_encodings = text } },
    image_sizes = { value = { 4 }, inputs = { noise = { 2, 3, 4, 4 } } },
    channels = { value = 1, inputs = { noise = { 2, 1, 8, 8 },
                                       image = { 2, 1, 8, 8 } } },
    predict_x_start_for_latent_diffusion = { value = true,
      more = { vae = { dim = 4, image_size = 8, layers = 1,
        vq_kmeans_init = false, encdec_resnet_groups = 2,
        use_vgg_and_gan = false } }, inputs = { noise = { 2, 4, 4, 4 } } },
    vae = { value = { dim = 4, image_size = 8, layers = 1,
      vq_kmeans_init = false, encdec_resnet_groups = 2,
      use_vgg_and_gan = false }, inputs = { noise = { 2, 4, 4, 4 } } },
  },
  ignored = {
    unets = { value = { small } }, image_size = { value = 8,
      more = { image_sizes = NONE } },
    clip = { make = "openai" }, clip_denoised = false, clip_x_start = false,
    clip_adapter_overrides = { image_size = 8 } } })
group({
  name = "decoder_p2", part = "decoder", inputs = training,
  options = with(decoder, { p2_loss_weight_gamma = 1 }),
  expect = { loss = 0 }, change = { p2_loss_weight_k = 2 } })
group({
  name = "decoder_sample", part = "decoder_sample", options = decoder,
  inputs = { image_embed = { 2, 12 } },
  expect = { out = { sum = 0, abs = 0 } },
  change = { sample_timesteps = 4, use_dynamic_thres = true } })
group({
  name = "decoder_thres", part = "decoder_sample",
  options = with(decoder, { use_dynamic_thres = true, sample_timesteps = 4 }),
  inputs = { image_embed = { 2, 12 } },
  expect = { out = { sum = 0, abs = 0 } },
  change = { dynamic_thres_percentile = 0.5, ddim_sampling_eta = 1 } })

local cascade = with(decoder, { unet = { small, small },
                                image_sizes = { 8, 16 } })
local larger = {
  image = { 2, 3, 16, 16, fill = "img16", scale = .5, add = .5 },
  image_embed = { 2, 12 }, noise = { 2, 3, 16, 16 },
  t = { 2, ints = { 0, 17 } }, blur_coin = { fill = "c", values = { 1 } } }
group({
  name = "cascade", part = "decoder", options = cascade, inputs = larger,
  call = { unet_number = 2 }, expect = { loss = 0 },
  change = {
    use_noise_for_lowres_cond = true, lowres_downsample_first = false,
    use_blur_for_lowres_cond = { value = false,
      more = { use_noise_for_lowres_cond = true } },
    blur_prob = 0, blur_sigma = 1.5, blur_kernel_size = 5,
    random_crop_sizes = { value = { false, 8 },
                          inputs = { noise = { 2, 3, 8, 8 } } },
  } })
group({
  name = "cascade_sample", part = "decoder_sample",
  options = with(cascade, { use_noise_for_lowres_cond = true,
                            sample_timesteps = 3 }),
  inputs = { image_embed = { 2, 12 } },
  expect = { out = { sum = 0, abs = 0 } },
  change = { lowres_noise_sample_level = 0.5 } })

---- CLIP ----

local clip = { dim_text = 12, dim_image = 16, dim_latent = 8,
               num_text_tokens = 50, text_enc_depth = 1,
               visual_enc_depth = 1, text_seq_len = 6, text_heads = 2,
               text_dim_head = 4, visual_heads = 2, visual_dim_head = 8,
               visual_image_size = 8, visual_patch_size = 4,
               visual_patch_dropout = 0 }
local pairs_ = {
  text = { 2, 6, ints = { { 8, 34, 11, 14, 48, 30 },
                          { 36, 11, 39, 48, 0, 0 } } },
  image = { 2, 3, 8, 8, fill = "img", scale = .5, add = .5 } }
local cost = { loss = 0, params = 0, gradL2 = 0 }
group({
  name = "clip", part = "clip", options = clip, inputs = pairs_,
  expect = cost,
  change = {
    dim_text = 10, dim_image = 12, dim_latent = 6, num_text_tokens = 60,
    text_enc_depth = 2, text_seq_len = 7, text_heads = 3, text_dim_head = 6,
    text_pad_id = 8, text_rotary_pos_emb = true,
    text_causal_mask = { value = true, more = { text_eos_id = 48 } },
    text_encode_without_mask = true, visual_enc_depth = 2, visual_heads = 3,
    visual_dim_head = 4, visual_patch_size = 2, visual_patch_dropout = 0.5,
    visual_image_size = { value = 12, inputs = { image = { 2, 3, 12, 12 } } },
    channels = { value = 1, inputs = { image = { 2, 1, 8, 8 } } },
    use_all_token_embeds = true, decoupled_contrastive_learning = true,
    extra_latent_projection = true, use_mlm = true,
    sim_reg_loss_weight = 0.5,
    downsample_image_embeds = { value = true,
      more = { use_all_token_embeds = true } },
    multiview_loss_weight = { value = 0.3,
      inputs = { aug_image = { 2, 3, 8, 8 } } },
  },
  ignored = { checkpoint_during_training = true,
              -- of the self-supervised losses, when they are off
              image_ssl_loss_weight = 0.2 } })
group({
  name = "clip_tokens", part = "clip", inputs = pairs_, expect = cost,
  options = with(clip, { use_all_token_embeds = true }),
  change = { visual_has_cls_token = false,
             text_has_cls_token = { value = false,
               more = { text_causal_mask = true, text_eos_id = 48 } } } })
group({
  name = "clip_causal", part = "clip", inputs = pairs_, expect = cost,
  options = with(clip, { text_causal_mask = true, text_eos_id = 48 }),
  change = { text_eos_id = 11 } })
group({
  name = "clip_mlm", part = "clip", inputs = pairs_, expect = cost,
  options = with(clip, { use_mlm = true }),
  change = { text_ssl_loss_weight = 0.3, mlm_mask_prob = 0.5,
             mlm_replace_prob = 0.1, mlm_random_token_prob = 0.5,
             mlm_mask_token_id = 3, mlm_pad_token_id = 8,
             mlm_mask_ignore_token_ids = { value = { 34, 11, 14, 48 } } } })

---- VQGanVAE ----

local vqgan = { dim = 8, image_size = 16, layers = 2,
                use_vgg_and_gan = false, vq_codebook_dim = 6,
                vq_codebook_size = 10, vq_kmeans_init = false,
                encdec_resnet_groups = 4, encdec_attn_dim_head = 4,
                encdec_attn_heads = 2 }
local codes = { first = { 0, 0, 0, 0 }, sum = 0, abs = 0 }
group({
  name = "vqgan", part = "vqgan_train", options = vqgan,
  inputs = { img = { 2, 3, 16, 16, fill = "img16" } },
  expect = { loss = 0, params = 0, recons = { sum = 0, abs = 0 },
             leaves = { ["vq._codebook.embed"] = codes } },
  change = {
    dim = 16, layers = 1, l2_recon_loss = true, vae_type = { value = "vit",
      more = { encdec_resnet_groups = NONE, encdec_attn_heads = NONE,
               encdec_attn_dim_head = NONE } },
    image_size = { value = 8, inputs = { img = { 2, 3, 8, 8 } } },
    channels = { value = 1, inputs = { img = { 2, 1, 16, 16 } } },
    vq_codebook_dim = 5, vq_codebook_size = 12, vq_decay = 0.5,
    vq_kmeans_init = true, vq_use_cosine_sim = false, vq_eps = 0.5,
    vq_threshold_ema_dead_code = 2,
    encdec_layer_mults = { value = { 2, 4 } }, encdec_num_resnet_blocks = 2,
    encdec_resnet_groups = 2, encdec_first_conv_kernel_size = 3,
    encdec_use_attn = false, encdec_attn_dim_head = 6,
    encdec_attn_heads = 3, encdec_attn_dropout = 0.5,
  } })
group({
  name = "vqgan_means", part = "vqgan_train",
  options = with(vqgan, { vq_kmeans_init = true }),
  inputs = { img = { 2, 3, 16, 16, fill = "img16" } },
  expect = { loss = 0, leaves = { ["vq._codebook.embed"] = codes } },
  change = { vq_kmeans_iters = 1 } })
group({
  name = "vqgan_vit", part = "vqgan_train",
  options = { dim = 12, image_size = 16, layers = 1, use_vgg_and_gan = false,
              vae_type = "vit", vq_codebook_dim = 6, vq_codebook_size = 10,
              vq_kmeans_init = false, encdec_heads = 2, encdec_dim_head = 6,
              encdec_patch_size = 4 },
  inputs = { img = { 2, 3, 16, 16, fill = "img16" } },
  expect = { loss = 0, params = 0, recons = { sum = 0, abs = 0 } },
  change = { encdec_patch_size = 2, encdec_heads = 3, encdec_dim_head = 4,
             encdec_ff_mult = 2 } })
group({
  name = "vqgan_gan", part = "vqgan_discriminator",
  options = { dim = 16, image_size = 32, layers = 1, discr_layers = 2 },
  inputs = { img = { 1, 3, 32, 32 }, recons = { 1, 3, 32, 32 } },
  expect = { loss = 0, gradL2 = 0 },
  change = { discr_layers = 1, use_hinge_loss = false } })

return cases
