"""Which composed models are wanted, and what becomes of them when a model that they are made of changes.

Pure bookkeeping on the event loop: the registry owns the models that serve, and retires those that are given back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from service.cards import ModelCard
from service.errors import ModelLoadFailed
from service.repository.composed import ComposedModel, LoadedModel
from service.repository.layout import ModelFolder
from service.repository.loader import ModelLoader
from service.repository.served import ServedModel

IS_COMPOSED = "is composed of others itself; name models that have tensors"


@dataclass(slots=True)
class Compositions:
    """The cards of composed models that are loaded, by name.

    A card stays while a member is away, so that the model comes back with it.
    """

    cards: dict[str, ModelCard] = field(default_factory=dict)

    def of_member(self, name: str) -> Iterator[ModelCard]:
        """The cards that name `name` as a member."""
        return (card for card in tuple(self.cards.values()) if name in card.members.values())


def check_card(card: ModelCard, folder: ModelFolder, folders: Mapping[str, ModelFolder]) -> None:
    """Holds a card without a model against the repository.

    Raises:
        ModelLoadFailed: the card names no other models, one that is not there, or one that is composed itself.
    """
    if not card.members:
        raise ModelLoadFailed(f"model '{folder.name}' cannot be loaded: {folder.problem}")
    for key, name in card.members.items():
        member = folders.get(name)
        if member is None:
            raise ModelLoadFailed(
                f"model '{card.name}': [{card.task}] {key} = '{name}' is not in the repository, which holds "
                f"{sorted(folders)}"
            )
        if member.has_card_alone:
            raise ModelLoadFailed(f"model '{card.name}': [{card.task}] {key} = '{name}' {IS_COMPOSED}")


def compose(card: ModelCard, served: Mapping[str, LoadedModel], loader: ModelLoader) -> ComposedModel:
    """The composed model of a card, made of the members that serve now.

    Raises:
        ModelLoadFailed: a member does not serve, or does not fit.
    """
    members: dict[str, ServedModel] = {}
    for key, name in card.members.items():
        member = served.get(name)
        if not isinstance(member, ServedModel):
            problem = "is not ready" if member is None else IS_COMPOSED
            raise ModelLoadFailed(f"model '{card.name}': its {key} '{name}' {problem}")
        members[key] = member
    return loader.compose(card, members)
