"""A server of the Model Context Protocol, over stdio, that writes down what it is asked."""

from __future__ import annotations

import sys
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("archive")


@server.tool()
def file(text: str) -> str:
    """Files a text."""
    with Path(sys.argv[1]).open("a") as log:
        log.write(f"file {text}\n")
    return f"filed {text}"


if __name__ == "__main__":
    server.run("stdio")
