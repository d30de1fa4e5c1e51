"""Describe every command for its help: purpose, exit statuses and examples."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PAGES", "Page"]


@dataclass(frozen=True, slots=True)
class Page:
    """The part of a command's help that is not about options.

    Attributes:
        description: The text below the usage line. The list of commands shows its first paragraph.
        statuses: Each exit status and its meaning.
        examples: Complete command lines.
        behind: The words at the end of the usage line.
    """

    description: str
    statuses: tuple[tuple[str, str], ...]
    examples: tuple[str, ...]
    behind: str = ""


_USAGE = ("2", "The command line or a setting is wrong. Nothing was done.")
_NO_QUORUM = ("69", "No majority of the nodes answered.")

PAGES = {
    "run": Page(
        """Hold a lock while a command runs.

        Without --shared and --slots the command runs alone. Other commands with the same NAME wait,
        even those with --shared. With --slots N, up to N commands run at the same time.

        The command runs without a shell, in a process group of its own. The command's environment
        has AIOREDLOCK_NG_NAME, AIOREDLOCK_NG_TOKEN, AIOREDLOCK_NG_FENCE and AIOREDLOCK_NG_SLOT.
        Signals are passed on to the command. If this process is killed, the command is killed too.
        """,
        (
            ("the command's", "128 + N if signal N ended the command."),
            ("1", "Another client holds the lock, or all slots are held. -E sets another status."),
            _USAGE,
            (
                "69",
                (
                    "No majority of the nodes answered, or a majority cannot be used, for example"
                    " because of a wrong password."
                ),
            ),
            ("75", "The lock was lost. --lost-code sets another status."),
            ("126", "The command cannot be executed."),
            ("127", "The command was not found."),
        ),
        (
            "aioredlock-ng run nightly-report -- ./report.sh --all",
            "aioredlock-ng run -n nightly-report -- ./report.sh",
            "aioredlock-ng run -w 30 account:1 account:2 -- ./move.sh",
            "aioredlock-ng run --slots 4 report -- ./report.sh",
            "aioredlock-ng run --shared catalog -- ./report.sh",
        ),
        "-- COMMAND [ARG]...",
    ),
    "elect": Page(
        """Run a command while this host leads.

        elect waits until no other candidate leads, and then starts the command. If the lock cannot
        be renewed, elect ends the command before another candidate can lead. Then elect waits to
        lead again, and starts the command anew. If the command ends by itself, elect ends with its
        exit status.
        """,
        (
            ("the command's", "128 + N if signal N ended the command."),
            _USAGE,
            ("69", "A majority of the nodes cannot be used, for example with a wrong password."),
            ("75", "The lock was lost, and --no-rejoin was given."),
            ("126", "The command cannot be executed."),
            ("127", "The command was not found."),
        ),
        ("aioredlock-ng elect reporter -- ./report.sh --all",),
        "-- COMMAND [ARG]...",
    ),
    "inspect": Page(
        """Show the holder of a lock, node by node.

        If readers hold the lock, each reader is shown. With --slots the holder of each slot of a
        semaphore is shown. Nothing is written to the nodes. The exit status does not say whether
        the lock is held: use "wait -w 0 NAME" in scripts.

        Slot 1 of the semaphore "gpu" is the lock "gpu#1".
        """,
        (("0", "The lock is held, or it is free."), _USAGE, _NO_QUORUM),
        (
            "aioredlock-ng inspect order:42",
            "aioredlock-ng inspect order:42 --json",
            "aioredlock-ng inspect --slots 4 report",
        ),
    ),
    "ls": Page(
        """List the locks on the nodes.

        The command scans all keys of the nodes. A string that expires is listed as a lock, because
        a node cannot distinguish a lock from another string that expires. Locks with readers are
        listed too. Keys that begin with "aioredlock_ng:" are not listed. Give a PATTERN if the
        nodes have other strings that expire.
        """,
        (
            ("0", "The list is complete. It may be empty."),
            _USAGE,
            ("69", "No majority of the nodes could be scanned."),
        ),
        ("aioredlock-ng ls", "aioredlock-ng ls 'order:*'"),
    ),
    "release": Page(
        """Take a lock away from its holder.

        The command asks first, and then takes the lock only from the holder that the question
        named. With --yes the command takes the lock from any holder.

        A holder that uses this library is notified at once. Any other holder notices the loss at
        its next renewal, and may continue its work until then.

        A key without expiry, or with a type that locks do not have, may be data of another
        application. Without --any-key the command does not delete such a key, and ends with status
        2.

        Slot 1 of the semaphore "gpu" is the lock "gpu#1".
        """,
        (
            ("0", "The lock is free."),
            ("1", "You answered no, or the lease ended before you answered."),
            _USAGE,
            _NO_QUORUM,
        ),
        ("aioredlock-ng release deploy --force",),
    ),
    "wait": Page(
        """Wait until a lock is free.

        The command never takes the lock, so another client may have it a moment later. A lock that
        is offered to a waiter is not free. With --json the command prints the last state, in the
        form of inspect --json.

        Slot 1 of the semaphore "gpu" is the lock "gpu#1".
        """,
        (
            ("0", "The lock, or a slot, is free."),
            ("1", "When -w ended, the lock or every slot was still held. -E sets another status."),
            _USAGE,
            ("69", "No majority of the nodes answered the first request, or later for 30 seconds."),
        ),
        (
            "aioredlock-ng wait deploy && echo free",
            "aioredlock-ng wait -w 0 deploy || echo held",
            "aioredlock-ng wait --slots 4 report && echo free",
        ),
    ),
    "top": Page(
        """Watch locks and nodes live.

        A frame shows every node with its recent round trips, and every lock with its owner. Columns
        that do not fit into the terminal are left out, the least important first. Times are in
        seconds.
        """,
        (
            ("0", "--once has shown its frame."),
            _USAGE,
            ("69", "With --once: no majority of the nodes answered."),
            ("130", "Control-C ended top."),
        ),
        ("aioredlock-ng top 'order:*'", "aioredlock-ng top --once"),
    ),
    "bench": Page(
        """Measure acquire and release on the nodes.

        The command acquires locks under names that no other client uses, and releases all these
        locks. Times are in seconds.
        """,
        (
            ("0", "The figures are complete."),
            ("1", "No attempt got the lock, although a majority of the nodes answered."),
            _USAGE,
            _NO_QUORUM,
        ),
        ("aioredlock-ng bench --seconds 5 --coroutines 10",),
    ),
    "doctor": Page(
        """Find the weaknesses of a set of nodes.

        Each finding says what it means for the locks and what to do. The command acquires and
        releases a test lock on each node, under a name that no other client uses. Times are in
        seconds.
        """,
        (
            ("0", "Nothing is wrong."),
            ("1", "There are warnings."),
            ("2", "There are errors, or the command line or a setting is wrong."),
        ),
        ("aioredlock-ng doctor", "aioredlock-ng doctor --json --ignore same-host"),
    ),
    "demo": Page(
        """Show how the library copes with faults.

        Processes update counters in a plain file, first without a lock and then with one. Meanwhile
        nodes hang and die, and a holder loses its lock. Times are in seconds.
        """,
        (
            ("0", "No update was lost under the lock."),
            ("1", "An update was lost under the lock, or the demo was aborted."),
            ("2", "The demo could not begin."),
        ),
        ("aioredlock-ng demo", "aioredlock-ng demo --plain --seconds 10"),
    ),
}
