default_scope = "polaformer"
visualizer = dict(type="polaformer.Visualizer", vis_backends=[dict(type="polaformer.LocalBackend")])
