"""`python -m loadtest.peers MODELS TARGET`: model repositories for a comparison with other servers on their models.

A harness that compares servers starts each with one model, so every ONNX file in MODELS gets a repository of its own:
`TARGET/<name>/<name>`, with a card of one lane of one thread, which is what the others are given as well. What to run
then is in `docs/benchmarks.md`. Needs `onnx` and `onnxruntime`, for the module that it shares with the speed bars.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.errors import LoadTestError
from loadtest.speed_models import add_card


def make_repositories(models: Path, target: Path, max_batch_size: int) -> list[Path]:
    """One repository for each ONNX file in `models`, in the order of their names.

    Args:
        models: folder of `<name>.onnx` files.
        target: folder to make, or to add to.
        max_batch_size: of every card, in rows.

    Raises:
        LoadTestError: there is no ONNX file, or a repository is there already.
    """
    files = sorted(models.glob("*.onnx"))
    if not files:
        raise LoadTestError(f"{models} holds no .onnx file; give the folder in which the compared models are")
    repositories = []
    for file in files:
        repository = target / file.stem
        try:
            shutil.copyfile(file, add_card(repository, file.stem, max_batch_size))
        except FileExistsError as error:
            raise LoadTestError(f"{repository} is there already; remove it, or give another TARGET") from error
        repositories.append(repository)
    return repositories


def main(
    models: Annotated[Path, typer.Argument(help="Folder of ONNX files.", exists=True, file_okay=False)],
    target: Annotated[Path, typer.Argument(help="Folder to make the repositories in.", file_okay=False)],
    max_batch_size: Annotated[int, typer.Option(min=1, help="Rows of a batch at most.")] = 16,
) -> None:
    """Makes a repository for each model and prints where; exits with 2 if it cannot."""
    console = Console(soft_wrap=True)
    try:
        for repository in make_repositories(models, target, max_batch_size):
            console.print(str(repository), markup=False, highlight=False)
    except LoadTestError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False)
        raise typer.Exit(2) from error


if __name__ == "__main__":
    typer.run(main)
