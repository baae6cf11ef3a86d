"""A vision-language model in this process as a `ChatEngine`: messages with pictures in, text out (Transformers' `AutoModelForImageTextToText`).

Pictures come as `data:` addresses in content parts and are unpacked by Pillow; nothing is fetched. One row is generated at a time. The
processor is taken with its Pillow backend, which needs no torchvision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rrm.engines.base import Reply, SamplingParams
from rrm.errors import EngineError, RRMError, TooLong
from rrm.pictures import Picture, decoded, picture_of
from rrm.prompt.template import Disarm
from rrm.seeds import derive_seed

OnReply = Callable[[int, Reply | EngineError], None]


class VisionEngine:
    """A `ChatEngine` over a model and its processor.

    Args:
        model: an image-text-to-text model in evaluation mode.
        processor: its processor, with a tokenizer and a chat template.
        device: where the model is.
    """

    takes_schema = False
    """Nothing holds what it writes to a form."""

    def __init__(self, model: Any, processor: Any, device: str = "cpu") -> None:
        if getattr(processor, "chat_template", None) is None:
            raise RRMError("the processor has no chat template: choose a model that was made to be talked to")
        self.model, self.processor, self.device = model, processor, device
        tokenizer = processor.tokenizer
        self._disarm = Disarm(tokenizer)
        self._image_token = getattr(processor, "image_token", None)
        ends = model.generation_config.eos_token_id
        self._ends = {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])}
        config = model.config.get_text_config()
        self.max_positions: int | None = getattr(config, "max_position_embeddings", None)

    def complete(self, messages: list[dict[str, Any]], params: SamplingParams, key: str = "") -> Reply:
        """One reply; `TooLong` where prompt, pictures and reply exceed the model's positions."""
        import torch

        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            torch.manual_seed(derive_seed(params.seed, key) % 2**63)
            inputs = self._inputs(messages)
            read = inputs["input_ids"].shape[1]
            if self.max_positions is not None and read + params.max_new_tokens > self.max_positions:
                raise TooLong(
                    f"the prompt has {read} tokens with its images and a reply may have {params.max_new_tokens}, over the model's "
                    f"{self.max_positions} positions: lower --images, --transcript-tokens or --max-new-tokens"
                )
            sampled = {"do_sample": True, "temperature": params.temperature, "top_k": 0}
            how: dict[str, Any] = sampled if params.temperature > 0 else {"do_sample": False}
            made = self.model.generate(**inputs, max_new_tokens=params.max_new_tokens, **how)[0, read:].tolist()
        ended = bool(made) and made[-1] in self._ends
        return Reply(self.processor.tokenizer.decode(made, skip_special_tokens=True), "eos" if ended else "length")

    def complete_many(
        self,
        rows: Sequence[list[dict[str, Any]]],
        params: SamplingParams,
        keys: Sequence[str],
        on_reply: OnReply | None = None,
    ) -> list[Reply | EngineError]:
        """A reply, or the error in its place, per row; `on_reply` hears of each as it ends."""
        found: list[Reply | EngineError] = []
        for row, (messages, key) in enumerate(zip(rows, keys, strict=True)):
            try:
                reply: Reply | EngineError = self.complete(messages, params, key)
            except EngineError as error:
                reply = error
            found.append(reply)
            if on_reply is not None:
                on_reply(row, reply)
        return found

    def _inputs(self, messages: list[dict[str, Any]]) -> Any:
        """What the model takes: token ids, and the pictures' pixels where there are any."""
        images = list[Any]()
        turns = [{"role": m["role"], "content": self._parts(m["content"], images)} for m in messages]
        try:
            text = self.processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        except Exception as error:  # a template may raise what it likes
            if turns[0]["role"] != "system":
                raise EngineError(f"the chat template does not take the messages: {error}") from error
            merged = [{"role": "user", "content": [part for turn in turns for part in turn["content"]]}]
            text = self.processor.apply_chat_template(merged, add_generation_prompt=True, tokenize=False)
        try:
            return self.processor(text=text, images=images or None, return_tensors="pt").to(
                self.device, self.model.dtype
            )
        except (ValueError, TypeError, RuntimeError) as error:
            raise EngineError(f"the processor does not take the prompt with {len(images)} images: {error}") from error

    def _parts(self, content: Any, images: list[Any]) -> list[dict[str, str]]:
        """Content as templates of such models take it; the pictures are added to `images` in their order."""
        if isinstance(content, str):
            return [{"type": "text", "text": self._clean(content)}]
        parts = list[dict[str, str]]()
        for part in content:
            if isinstance(part.get("text"), str):
                parts.append({"type": "text", "text": self._clean(part["text"])})
                continue
            found = picture_of(part)
            if not isinstance(found, Picture):
                raise EngineError(f"an image that cannot be shown: {found}")
            try:
                images.append(decoded(found))
            except ValueError as error:
                raise EngineError(f"an image that cannot be shown: {error}") from error
            parts.append({"type": "image"})
        return parts

    def _clean(self, text: str) -> str:
        """No special token comes out of a text, nor the sign that stands for a picture."""
        text = self._disarm(text)
        return text.replace(self._image_token, self._image_token.strip("<>[]|")) if self._image_token else text


def load_vision(place: str | Path, *, device: str, dtype: Any, trust_remote_code: bool = False) -> VisionEngine:
    """The engine of a folder or hub id.

    Raises:
        RRMError: nothing there that can be loaded as a vision-language model.
    """
    from transformers import AutoModelForImageTextToText, AutoProcessor

    how: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    try:
        processor = AutoProcessor.from_pretrained(str(place), backend="pil", **how)
        model: Any = AutoModelForImageTextToText.from_pretrained(str(place), dtype=dtype, use_safetensors=True, **how)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise RRMError(f"cannot load {str(place)!r} as a vision-language model: {error}") from error
    return VisionEngine(model.to(device).eval(), processor, device)
