runner_type = "polaformer.Runner"
default_hooks = dict(
    runtime_info=dict(type="RuntimeInfoHook"),
    timer=dict(type="IterTimerHook"),
    sampler_seed=dict(type="DistSamplerSeedHook"),
    step_seed=dict(type="polaformer.StepSeedHook"),
    health=dict(type="polaformer.HealthHook", max_bad_steps=10),
    throughput=dict(type="polaformer.ThroughputHook"),
    logger=dict(type="polaformer.LoggerHook", interval=100),
    progress=dict(type="polaformer.ProgressHook"),
    param_scheduler=dict(type="ParamSchedulerHook"),
    run_card=dict(type="polaformer.RunCardHook"),
    pictures=dict(type="polaformer.PictureHook"),
    checkpoint=dict(
        type="polaformer.CheckpointHook",
        max_keep_ckpts=3,
        save_best="auto",
        rule="greater",
    ),
    interrupt=dict(type="polaformer.InterruptHook"),
)
custom_hooks = []
env_cfg = dict(cudnn_benchmark=False, mp_cfg=dict(mp_start_method="fork"))
log_level = "INFO"
log_processor = dict()
load_from = None
resume = False
randomness = dict(seed=0)
