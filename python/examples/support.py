"""A support agent: reads a complaint, asks a person, pays the money back, and writes to the customer.

    python examples/support.py /tmp/support             # stops at the approval, and waits
    python examples/support.py /tmp/support approve     # in another window, or when the first one is dead

**Kill me** wherever you like, also while I wait or pay (`kill -9`), and start me again. `/tmp/support/bank.txt` has one
payment, `/tmp/support/mails.txt` one mail, and the approval was needed once. The bank knows payments by their key, so
its probe can say whether one happened. Of a mail nobody can say that: if I was killed while I sent it, I ask you:

    python examples/support.py /tmp/support sent        # or: not-sent
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TypedDict

import local_model

import dalsegno

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "support")
RUN = "complaint 1"


class Refund(TypedDict):
    order: str
    amount: int
    reason: str


def append(file: str, line: str) -> None:
    """One write: it is there, or it is not."""
    with open(FOLDER / file, "ab", buffering=0) as opened:
        opened.write(line.encode() + b"\n")
        os.fsync(opened.fileno())
    time.sleep(local_model.PACE)  # The answer takes its time.


@dalsegno.model
def understand(complaint: str) -> Refund:
    found: Refund = local_model.answer(FOLDER, f"Read this complaint: {complaint}")
    return found


@dalsegno.model
def write_letter(refund: Refund) -> str:
    return local_model.complete(FOLDER, f"Write a letter about order {refund['order']}")


def was_paid(key: str) -> dalsegno.Probe:
    file = FOLDER / "bank.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    return dalsegno.happened(f"receipt {key[:8]}") if any(key in line for line in lines) else dalsegno.DID_NOT_HAPPEN


@dalsegno.tool(effect="once", probe=was_paid)
def pay_back(order: str, amount: int, *, key: str = "") -> str:
    append("bank.txt", f"{amount} for {order} under {key}")
    return f"receipt {key[:8]}"


@dalsegno.tool(effect="once")
def send_mail(text: str) -> None:
    append("mails.txt", text)


@dalsegno.agent
def support(complaint: str) -> str:
    refund = understand(complaint)
    answer = dalsegno.approval("refund", refund)
    if not answer:
        return f"{answer.by} said no: {answer.note}"
    receipt = pay_back(refund["order"], refund["amount"])
    send_mail(write_letter(refund))
    return f"{refund['amount']} paid back for {refund['order']}, approved by {answer.by}: {receipt}"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    if sys.argv[2:] == ["approve"]:
        with dalsegno.Remote(FOLDER / "store") as remote:
            remote.approve(RUN, "refund", by=os.environ.get("USER", "you"))
        return
    with dalsegno.open(FOLDER / "store", agents=[support]) as app:
        if sys.argv[2:] in (["sent"], ["not-sent"]):
            app.resolve(RUN, "send_mail#1", "happened" if sys.argv[2] == "sent" else "did_not_happen", by="you")
        run = app.start(support, RUN, "The teapot that I ordered came in pieces!")
        print(app.why(RUN))
        try:
            print(run.result())
        except dalsegno.InDoubt as e:
            sys.exit(f"{e}\nlook, then: python {sys.argv[0]} {FOLDER} sent (or: not-sent)")


if __name__ == "__main__":
    main()
