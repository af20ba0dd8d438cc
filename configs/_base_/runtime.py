runner_type = "polaformer.Runner"
default_hooks = dict(
    runtime_info=dict(type="RuntimeInfoHook"),
    timer=dict(type="IterTimerHook"),
    logger=dict(type="LoggerHook", interval=50),
    param_scheduler=dict(type="ParamSchedulerHook"),
    checkpoint=dict(type="CheckpointHook", interval=1, max_keep_ckpts=3, save_best="top1"),
)
custom_hooks = []
env_cfg = dict(cudnn_benchmark=False, mp_cfg=dict(mp_start_method="fork"))
log_level = "INFO"
log_processor = dict(by_epoch=True)
load_from = None
resume = False
randomness = dict(seed=0)
