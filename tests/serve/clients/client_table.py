"""The clients of the server that are tested, and their table in docs/openai.md.

python tests/serve/clients/client_table.py        # writes the table
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PAGE = ROOT / "docs" / "openai.md"
PACKAGES, NODE_PACKAGES = HERE / "packages.txt", HERE / "package.json"
BEGIN, END = "<!-- clients: begin -->", "<!-- clients: end -->"


class Client(NamedTuple):
    """A client.

    Args:
        name: as its users call it.
        package: of the registry.
        program: its calls, beside this file.
    """

    name: str
    package: str
    program: str

    @property
    def node(self) -> bool:
        """Whether it runs in Node.js, not in Python."""
        return not self.program.endswith(".py")

    @property
    def version(self) -> str:
        """Which version is tested."""
        if self.node:
            return str(json.loads(NODE_PACKAGES.read_text())["dependencies"][self.package])
        found = re.search(rf"^{re.escape(self.package)}==(\S+)", PACKAGES.read_text(), re.MULTILINE)
        assert found is not None, f"{self.package} has no version in {PACKAGES.name}"
        return found[1]

    def calls(self) -> dict[str, tuple[str, str]]:
        """How each call is written and what comes of it, by the name of its function."""
        text = (HERE / self.program).read_text()
        if self.node:
            found = re.findall(r'^(works|refused)\("(\w+)", "(.+?)"(?:, "(.+?)")?, async ', text, re.MULTILINE)
            return {name: (call, _outcome(kind, how)) for kind, name, call, how in found}
        calls = {}
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for each in node.decorator_list:
                    if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
                        call, *how = [ast.literal_eval(argument) for argument in each.args]
                        calls[node.name] = call, _outcome(each.func.id, *how)
        return calls


def _outcome(kind: str, how: str = "") -> str:
    return "works" if kind == "works" else f"refused: {how}"


CLIENTS = (
    Client("OpenAI", "openai", "calls_openai.py"),
    Client("LiteLLM", "litellm", "calls_litellm.py"),
    Client("LangChain", "langchain-openai", "calls_langchain.py"),
    Client("LlamaIndex", "llama-index-llms-openai-like", "calls_llama_index.py"),
    Client("Instructor", "instructor", "calls_instructor.py"),
    Client("Pydantic AI", "pydantic-ai-slim", "calls_pydantic_ai.py"),
    Client("OpenAI's Agents SDK", "openai-agents", "calls_openai_agents.py"),
    Client("Anthropic", "anthropic", "calls_anthropic.py"),
    Client("Ollama", "ollama", "calls_ollama.py"),
    Client("lm-evaluation-harness", "lm_eval", "calls_lm_eval.py"),
    Client("KServe", "kserve", "calls_kserve.py"),
    Client("OpenAI", "openai", "calls_openai.cjs"),
    Client("Vercel's AI SDK", "ai", "calls_ai.cjs"),
)


def table() -> str:
    """The table in Markdown."""
    lines = ["| client | call | | test |", "|---|---|---|---|"]
    for client in CLIENTS:
        where = f"{client.package} {client.version}" + " (npm)" * client.node
        for name, (call, outcome) in client.calls().items():
            lines.append(f"| {client.name}: {where} | {call} | {outcome} | `{client.program}`, `{name}` |")
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with the table between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
