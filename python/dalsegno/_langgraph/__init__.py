"""How `dalsegno.langgraph` stores threads.

| file | what is in it |
|---|---|
| `thread.py` | where in its stream each checkpoint of a thread is |
| `records.py` | a checkpoint and writes as bytes |
| `values.py` | the value of a channel as bytes: what a list has in common with the last one is stored once |
| `keeping.py` | what is asked of a thread: put, get, list, copy |
| `letting_go.py` | deleting and pruning |
"""
