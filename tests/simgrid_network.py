"""Runs cases of flows or parallel tasks in SimGrid; for an interpreter that has it.

Reads JSON from standard input, a list of cases {xml, config, flows, tasks}: flows are [start s, from, to, bytes],
tasks are [start s, hosts, flops, bytes as a flat matrix]. Writes the list of their finish dates in s,
with null for a case on which SimGrid gave up.
"""

import json
import os
import sys

from simgrid import Actor, Comm, Engine, Host, this_actor


def clock():
    return Engine.clock() if callable(Engine.clock) else Engine.clock


def run(case):
    engine = Engine(["network", "--log=root.thres:error", *(f"--cfg={setting}" for setting in case["config"])])
    engine.load_platform(case["xml"])
    for host in engine.all_hosts:
        host.pstate = 0
    flows, tasks = case.get("flows", []), case.get("tasks", [])
    ends = [None] * (len(flows) + len(tasks))

    def send(number, start, source, target, volume):
        this_actor.sleep_until(start)
        Comm.sendto(source, target, volume)
        ends[number] = clock()

    def execute(number, start, hosts, flops, volumes):
        this_actor.sleep_until(start)
        this_actor.parallel_execute(hosts, flops, volumes)
        ends[number] = clock()

    here = Host.by_name("master_host")
    for number, (start, source, target, volume) in enumerate(flows):
        Actor.create("flow", here, send, number, start, Host.by_name(source), Host.by_name(target), volume)
    for number, (start, hosts, flops, volumes) in enumerate(tasks, len(flows)):
        Actor.create("task", here, execute, number, start, [Host.by_name(name) for name in hosts], flops, volumes)
    engine.run()
    return ends


def run_apart(case):
    """SimGrid holds one platform per process, and starting an interpreter per case would take most of the time."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as out:
                json.dump(run(case), out)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    return None if os.waitpid(child, 0)[1] else json.loads(text)


if __name__ == "__main__":
    json.dump([run_apart(case) for case in json.load(sys.stdin)], sys.stdout)
