default_scope = "polaformer"
visualizer = dict(type="Visualizer", vis_backends=[dict(type="LocalVisBackend")])
