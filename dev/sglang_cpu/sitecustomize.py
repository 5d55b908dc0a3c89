"""torchvision beside a CPU build of torch: its compiled part wants CUDA libraries, its import only two names of it.

The interpreter imports this file at its start. Nothing is loaded then: the operators are declared when somebody asks
for torchvision, and have no implementation, so a call of one fails as it should.
"""

import sys


class _Torchvision:
    """A finder that finds nothing, and declares torchvision's operators before the real finders look for it."""

    library = None

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "torchvision" and cls.library is None:
            import torch  # noqa: PLC0415  a second of every start, needed by few

            cls.library = torch.library.Library("torchvision", "DEF")
            cls.library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            cls.library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


sys.meta_path.insert(0, _Torchvision)
