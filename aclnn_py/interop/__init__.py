"""Arrays of other packages. ``interop.torch`` holds the differentiable operators; the rest registers itself.

A module here is imported when an array of its package arrives, never by ``import aclnn_py``.
"""
