"""Annotation files in COCO's format, for data sets, evaluation and pictures.

``format`` reads one and puts it right, over ``reading`` (opening and parsing), ``ids`` (in either
writing) and ``masks`` (in every form). No torch, no mmengine.
"""
