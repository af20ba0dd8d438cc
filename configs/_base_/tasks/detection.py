default_scope = "mmdet"
visualizer = dict(type="polaformer.Visualizer", vis_backends=[dict(type="polaformer.LocalBackend")])
