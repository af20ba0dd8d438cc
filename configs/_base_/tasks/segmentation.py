default_scope = "mmseg"
visualizer = dict(type="polaformer.Visualizer", vis_backends=[dict(type="polaformer.LocalBackend")])
