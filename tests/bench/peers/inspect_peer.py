"""inspect_ai at the same work, in an environment of its own: `inspect_peer.py endpoint|zero SAMPLES`, prints seconds.

endpoint: SAMPLES samples of five calls each, all at once, against BENCH_BASE_URL. zero: its mock model, no latency.
Each sample calls a tool that does nothing; logs are written as always.
"""

from __future__ import annotations

import sys
import tempfile
import time

from inspect_ai import Task, eval, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageAssistant, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool

CALLS = 5


@tool
def bash():
    async def execute(command: str) -> str:
        """Runs a command in the shell.

        Args:
            command: What to run.
        """
        return "ok"

    return execute


@task
def noop(samples: int) -> Task:
    data = [Sample(id=n, input=f"List the files of folder {n}.", target="done") for n in range(samples)]
    return Task(dataset=MemoryDataset(data), solver=[use_tools(bash()), generate(tool_calls="loop")], scorer=includes())


def mocked(input, tools, tool_choice, config):
    said = sum(isinstance(message, ChatMessageAssistant) for message in input)
    if said < CALLS - 1:
        output = ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "ls -la"}, content="Look around.")
    else:
        output = ModelOutput.from_content("mockllm/model", "Everything is done.")
    output.usage = ModelUsage(input_tokens=900, output_tokens=20, total_tokens=920)  # else it would count, slowly
    return output


def main() -> None:
    mode, samples = sys.argv[1], int(sys.argv[2])
    zero = mode == "zero"
    model = get_model("mockllm/model", custom_outputs=mocked) if zero else get_model("openai-api/bench/noop")
    with tempfile.TemporaryDirectory() as logs:
        for number in (1, samples):  # the first one loads what is loaded late
            began = time.perf_counter()
            [log] = eval(
                noop(number), model=model, log_dir=logs, display="none", max_samples=samples, max_connections=samples,
            )  # fmt: skip
            seconds = time.perf_counter() - began
        calls = sum(1 for s in log.samples or [] for m in s.messages if m.role == "assistant")
        assert log.status == "success" and calls == CALLS * samples, (log.status, log.error, calls)
    print(seconds)


if __name__ == "__main__":
    main()
