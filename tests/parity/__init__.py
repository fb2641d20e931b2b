"""The embedded API server beside a real kube-apiserver, call by call.

A *behaviour* makes a few calls and keeps what was answered. `recorded/` holds what kube-apiserver answered; the tests
hold the embedded server against it, and, where a real server runs, the recording against that server.
"""
