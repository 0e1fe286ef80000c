"""A scheduler made for Batsim, first come, first served: ``python scheduler.py ipc://scheduler``."""

import json
import sys

import zmq

socket = zmq.Context().socket(zmq.REP)
socket.bind(sys.argv[1])
idle, queue, held, running = set(), [], {}, True
while running:
    message = json.loads(socket.recv())
    events = []
    for event in message["events"]:
        data = event["data"]
        if event["type"] == "SIMULATION_BEGINS":
            idle = set(range(data["nb_resources"]))
        elif event["type"] == "JOB_SUBMITTED":
            queue.append(data["job"])
        elif event["type"] == "JOB_COMPLETED":
            idle |= held.pop(data["job_id"])
        running = event["type"] != "SIMULATION_ENDS"
    while queue and queue[0]["res"] <= len(idle):
        job = queue.pop(0)
        held[job["id"]] = given = set(sorted(idle)[: job["res"]])
        idle -= given
        data = {"job_id": job["id"], "alloc": " ".join(map(str, sorted(given)))}
        events.append({"timestamp": message["now"], "type": "EXECUTE_JOB", "data": data})
    socket.send_string(json.dumps({"now": message["now"], "events": events}))
