module headroom.io/tests/node/probe

go 1.25
