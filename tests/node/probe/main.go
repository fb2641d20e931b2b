// What the pods of the tests run: waits, burns CPU, fills memory, serves requests or makes them. Without arguments it is
// a pod's pause container.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const (
	usage = "usage: probe [pause | burn THREADS | hold MIB | serve KIB | load URL RATE SECONDS]"
	step  = 1 << 20
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "load" {
		if len(os.Args) != 5 {
			fail()
		}
		load(os.Args[2], number(3), time.Duration(number(4))*time.Second)
		return
	}
	amount := 1
	if len(os.Args) > 2 {
		amount = number(2)
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "burn":
			for range amount {
				go func() {
					for {
					}
				}()
			}
		case "hold":
			go hold(amount)
		case "serve":
			go serve(amount)
		}
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
}

func number(position int) int {
	given, err := strconv.Atoi(os.Args[position])
	if err != nil {
		fail()
	}
	return given
}

func fail() {
	fmt.Fprintln(os.Stderr, usage)
	os.Exit(2)
}

// hold takes a MiB every 10 ms, and touches every page of it.
func hold(mib int) {
	held := make([][]byte, 0, mib)
	for range mib {
		piece := make([]byte, step)
		for offset := 0; offset < step; offset += 4096 {
			piece[offset] = 1
		}
		held = append(held, piece)
		time.Sleep(10 * time.Millisecond)
	}
	select {}
}
