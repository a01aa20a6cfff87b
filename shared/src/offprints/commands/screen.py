"""What a person sees while claims are measured."""

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from offprints import card as cards
from offprints.claims import Method, record
from offprints.claims.runner import Done, Outcome
from offprints.commands.base import rich_table


class Screen:
    """A progress bar above a table that fills; without a terminal one line for each claim that is done."""

    def __init__(self, method: Method, total: int, console: Console) -> None:
        self.method, self.console, self.outcomes = method, console, list[Outcome]()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bar = Progress(*columns, console=console)
        self.task = self.bar.add_task(method.dist, total=total)
        self.live = Live(self.bar, console=console, refresh_per_second=4) if console.is_terminal else None

    def _view(self) -> Group:
        entries = {"claims": [outcome.to_json() for outcome in self.outcomes]}
        return Group(rich_table(cards.claims_table(record.rounded(entries))), self.bar)

    def update(self, event: Done | Outcome) -> None:
        """Take in one event of the runner."""
        if isinstance(event, Done):
            self.bar.update(
                self.task, completed=event.done, description=f"{self.method.dist} · {event.claim} · seed {event.seed}"
            )
            return
        self.outcomes.append(event)
        if self.live is not None:
            self.live.update(self._view())
        else:
            row = cards.claims_table(record.rounded({"claims": [event.to_json()]}))[1][0]
            self.console.print(
                " · ".join([event.claim.id, f"paper: {row[1]}", f"here: {row[2]}", row[3]]),
                highlight=False,
                soft_wrap=True,
            )

    def __enter__(self) -> "Screen":
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()
