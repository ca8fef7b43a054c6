"""Task `ocr`: images in, lines of text out; composed of a model that finds lines and one that reads them.

Every image is a request to the detector and every line one to the recogniser, so lines of different clients share
batches, padded to buckets of their width.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from service.cards import OcrCard, Resize
from service.errors import ExecutionFailed, ModelLoadFailed, PayloadTooLarge
from service.models import ModelSpec
from service.pipeline.answers import SCORE_DECIMALS, rounded_pixels
from service.pipeline.decode import RgbImage
from service.pipeline.frames import RawImage
from service.pipeline.images import decode_file
from service.pipeline.media import MediaFile, split_media
from service.pipeline.needs import IMAGE_DTYPES, SCORE_DTYPES, dtypes_text, tensors_text
from service.pipeline.options import check_names
from service.pipeline.preprocess import ImageInput, Preprocessor, value_table
from service.pipeline.steps import Call, Outputs, Step, Steps
from service.pipeline.text_boxes import TextBox, find_text, scaled_back
from service.pipeline.text_lines import ReadLine, cut_out, read_ctc
from service.tensors import TensorSpec

DETECTOR = "detector"
RECOGNIZER = "recognizer"

MAX_IMAGES = 16
MAX_LINES_AT_ONCE = 32
"""Of one image that wait for the recogniser at the same time: a page full of text leaves its queue to others too, and
the probabilities of a wide line take megabytes."""

MAX_ENLARGEMENT = 2.0
"""A small image is enlarged so far for the detector, which was trained on larger print than screenshots have."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageFitter:
    """Makes the input of a member: an image scaled to any size up to the member's largest.

    Attributes:
        preprocessor: of the member; its target is the largest size.
        dim_order: the member's dynamic dimensions, each `height` or `width`.
    """

    preprocessor: Preprocessor
    dim_order: tuple[str, ...]

    def call(self, image: RgbImage, height: int, width: int, member: str) -> Call:
        """The image, stretched to `height` x `width`, as one row for `member`."""
        target = replace(self.preprocessor.target, height=height, width=width)
        host = target.allocate(1)
        replace(self.preprocessor, target=target).write(image, host[0])
        host.flags.writeable = False
        sizes = {"height": height, "width": width}
        return Call((host,), 1, tuple(sizes[name] for name in self.dim_order), member=member)


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line, where it stands on its image and what it says."""

    box: TextBox
    read: ReadLine


@dataclass(frozen=True, slots=True, eq=False)
class OcrTask:
    """`/predict` of a reader of text. Immutable, so all threads share it.

    Attributes:
        spec: the composed model.
        labels: character of each class of the recogniser.
        detector: makes the detector's input.
        recognizer: makes the recogniser's.
        max_pixels: most pixels of one image.
    """

    spec: ModelSpec
    labels: tuple[str, ...]
    detector: ImageFitter
    recognizer: ImageFitter
    max_pixels: int

    @property
    def card(self) -> OcrCard:
        """The thresholds."""
        return self.spec.card.ocr

    def check_options(self, options: Mapping[str, str]) -> None:
        """Accepts none.

        Raises:
            InvalidInput: there is one.
        """
        check_names(options, "ocr", ())

    def steps(self, body: bytes, content_type: str, options: Mapping[str, str]) -> Steps:
        """All images to the detector at once, then the lines of one image after the other to the recogniser."""
        return self._steps(lambda: self._decoded(split_media(body, content_type, max_files=MAX_IMAGES)))

    def frame_steps(self, frame: RawImage, options: Mapping[str, str]) -> Steps:
        """The same of a frame as the one image."""
        return self._steps(lambda: [frame.to_rgb()])

    def _steps(self, load: Callable[[], list[RgbImage]]) -> Steps:
        images = load()
        maps = yield Step(tuple(self._detection(image) for image in images))
        results = []
        for image, outputs in zip(images, maps, strict=True):
            lines = yield from self._read(image, self._boxes(image, outputs))
            results.append(self._result(image, lines))
        return {"model_name": self.spec.name, "model_version": self.spec.version, "results": results}

    def _decoded(self, files: Sequence[MediaFile]) -> list[RgbImage]:
        """All images of a request; they are in memory together, so together they are bounded."""
        images: list[RgbImage] = []
        left = self.max_pixels
        for file in files:
            try:
                images.append(decode_file(file, max_pixels=left))
            except PayloadTooLarge as error:
                if not images:
                    raise
                raise PayloadTooLarge(
                    f"{error.message}. The images before it have {self.max_pixels - left} of the {self.max_pixels} "
                    "pixels that those of one request may have together; send it in a request of its own"
                ) from None
            left -= images[-1].shape[0] * images[-1].shape[1]
        return images

    def _detection(self, image: RgbImage) -> Call:
        height, width, _ = image.shape
        target = self.detector.preprocessor.target
        scale = min(target.height / height, target.width / width, MAX_ENLARGEMENT)
        return self.detector.call(image, _scaled(height, scale), _scaled(width, scale), DETECTOR)

    def _boxes(self, image: RgbImage, outputs: Outputs) -> list[TextBox]:
        host_map = outputs[0][0, 0].astype(np.float32)
        if not np.isfinite(host_map).all():
            raise self._not_numbers(self.card.detector)
        height, width, _ = image.shape
        factors = (width / host_map.shape[1], height / host_map.shape[0])
        return list(scaled_back(find_text(host_map, self.card), factors, (width, height)))

    def _read(self, image: RgbImage, boxes: Iterable[TextBox]) -> Generator[Step, tuple[Outputs, ...], list[FoundLine]]:
        lines = []
        cuts = self._cuts(image, boxes)
        while several := list(islice(cuts, MAX_LINES_AT_ONCE)):
            answers = yield Step(tuple(call for _, call in several))
            for (box, _), (host_scores,) in zip(several, answers, strict=True):
                read = read_ctc(host_scores[0], self.labels)
                if not np.isfinite(read.score):
                    raise self._not_numbers(self.card.recognizer)
                if read.text.strip() and read.score >= self.card.text_threshold:
                    lines.append(FoundLine(box, read))
        return lines

    def _cuts(self, image: RgbImage, boxes: Iterable[TextBox]) -> Iterator[tuple[TextBox, Call]]:
        target = self.recognizer.preprocessor.target
        for box in boxes:
            line = cut_out(image, box)
            if line is not None:
                # A line wider than the widest bucket is squeezed; one narrower than it is high gets the model's square.
                width = round(line.shape[1] * target.height / line.shape[0])
                width = min(target.width, max(target.height, width))
                yield box, self.recognizer.call(line, target.height, width, RECOGNIZER)

    def _result(self, image: RgbImage, lines: list[FoundLine]) -> dict[str, object]:
        return {
            "height": image.shape[0],
            "width": image.shape[1],
            "text": "\n".join(line.read.text for line in lines),
            "lines": [
                {
                    "text": line.read.text,
                    "score": round(line.read.score, SCORE_DECIMALS),
                    "box": rounded_pixels(line.box.corners),
                }
                for line in lines
            ],
        }

    def _not_numbers(self, member: str) -> ExecutionFailed:
        return ExecutionFailed(
            f"model '{member}' answered with probabilities that are not numbers (NaN or infinite); check its precision "
            "and [preprocess] in its card"
        )


def _scaled(extent: int, scale: float) -> int:
    return max(1, int(extent * scale))


def create_ocr_task(spec: ModelSpec, members: Mapping[str, ModelSpec], *, max_image_pixels: int) -> OcrTask:
    """The task for a composed model, after checking that its members find and read text.

    Raises:
        ModelLoadFailed: the inputs, outputs, sizes or labels of a member do not fit.
    """
    detector, recognizer = members[DETECTOR], members[RECOGNIZER]
    _check_outputs(detector, "[batch, 1, height, width]", fits=_is_map)
    _check_outputs(recognizer, "[batch, steps, classes]", fits=_is_steps)
    labels, classes = recognizer.card.labels, recognizer.outputs[0].dims[2]
    if len(labels) != classes:
        raise ModelLoadFailed(
            f"model '{spec.name}': its recognizer '{recognizer.name}' has {classes} classes and {len(labels)} labels; "
            "name a label per class in its card, the first for the blank"
        )
    return OcrTask(spec, labels, _fitter(detector), _fitter(recognizer), max_pixels=max_image_pixels)


def _check_outputs(member: ModelSpec, shape: str, *, fits: Callable[[TensorSpec], bool]) -> None:
    outputs = member.outputs
    if len(outputs) != 1 or outputs[0].dtype not in SCORE_DTYPES or not fits(outputs[0]):
        found = tensors_text(outputs)
        raise ModelLoadFailed(
            f"model '{member.name}': task 'ocr' needs it to have exactly one output, of "
            f"{dtypes_text(SCORE_DTYPES)} and shape {shape}; it has {found}"
        )


def _is_map(tensor: TensorSpec) -> bool:
    """Whether it is a map of its input's size; that its dimensions have the input's names lets padding be cut off."""
    return len(tensor.dims) == 4 and tensor.dims[1] == 1 and tensor.dims[2:] == ("height", "width")


def _is_steps(tensor: TensorSpec) -> bool:
    return len(tensor.dims) == 3


def _takes_images(member: ModelSpec) -> bool:
    if len(member.inputs) != 1 or not member.has_batch_dim:
        return False
    (tensor,) = member.inputs
    return tensor.dtype in IMAGE_DTYPES and len(tensor.dims) == 4 and tensor.dims[1] == 3


def _fitter(member: ModelSpec) -> ImageFitter:
    table = member.buckets
    largest = {name: sizes[-1] for name, sizes in zip(table.dim_names, table.dim_sizes, strict=True) if sizes}
    if _takes_images(member) and set(table.dim_names) <= {"height", "width"}:
        (tensor,) = member.inputs
        height, width = (largest.get(dim, 0) if isinstance(dim, str) else dim for dim in tensor.dims[2:])
        if height and width:
            card = replace(member.card.preprocess, resize=Resize.STRETCH, shortest_side=None)
            target = ImageInput(tensor.dtype, height, width, is_channels_last=False)
            return ImageFitter(Preprocessor(target, card, value_table(member, tensor.dtype)), table.dim_names)
    found = tensors_text(member.inputs)
    raise ModelLoadFailed(
        f"model '{member.name}': task 'ocr' needs it to have exactly one input, of "
        f"{dtypes_text(IMAGE_DTYPES)} and shape [batch, 3, height, width], height and width "
        f"fixed or with sizes in [buckets]; it has {found}. [dims] can give its dimensions these names"
    )
