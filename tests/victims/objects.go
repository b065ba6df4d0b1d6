// A large map of objects that many goroutines build, look through and change, with the collector
// at work all the while. It prints a hash of all that is in it.
//
// usage: objects SEED
package main

import (
	"fmt"
	"hash/fnv"
	"os"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"time"
)

const (
	workers = 16
	each    = 9000
	rounds  = 3
)

type object struct {
	name   string
	values []uint64
	next   *object
}

// random gives the same numbers for the same state (xorshift).
func random(state *uint64) uint64 {
	*state ^= *state << 13
	*state ^= *state >> 7
	*state ^= *state << 17
	return *state
}

// build makes the objects of one goroutine, on a stack that grows.
func build(seed uint64, depth int) map[string]*object {
	if depth > 0 {
		return build(seed, depth-1)
	}
	state, objects := seed|1, make(map[string]*object)
	var last *object
	for i := 0; i < each; i++ {
		made := &object{name: fmt.Sprintf("object %d of %d", i, seed), next: last}
		for n := random(&state) % 48; n > 0; n-- {
			made.values = append(made.values, random(&state)%1000)
		}
		objects[made.name], last = made, made
	}
	return objects
}

// change drops some objects and makes garbage of others.
func change(objects map[string]*object, round int) {
	for i := round; i < each; i += 3 {
		for name, found := range objects {
			if found == nil {
				fmt.Println("nothing at", name)
				os.Exit(1)
			}
			break
		}
	}
	for _, found := range objects {
		values := make([]uint64, len(found.values))
		for i, value := range found.values {
			values[i] = value*31 + uint64(round)
		}
		found.values = values
	}
}

// verify hashes all objects in the order of their names.
func verify(objects map[string]*object) uint64 {
	names := make([]string, 0, len(objects))
	for name := range objects {
		names = append(names, name)
	}
	sort.Strings(names)
	hash := fnv.New64a()
	for _, name := range names {
		found := objects[name]
		if found.name != name {
			fmt.Println("wrong object at", name)
			os.Exit(1)
		}
		hash.Write([]byte(name))
		for _, value := range found.values {
			hash.Write(strconv.AppendUint(nil, value, 16))
		}
	}
	return hash.Sum64()
}

func main() {
	seed, err := strconv.ParseUint(os.Args[1], 10, 64)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	// Two threads at least, so that one preempts the other's goroutines by SIGURG.
	runtime.GOMAXPROCS(4)
	ticks, done := 0, make(chan bool)
	go func() {
		for ticker := time.NewTicker(5 * time.Millisecond); ; ticks++ {
			select {
			case <-ticker.C:
			case <-done:
				return
			}
		}
	}()
	hashes := make([]uint64, workers)
	var group sync.WaitGroup
	for worker := range hashes {
		group.Add(1)
		go func() {
			defer group.Done()
			objects := build(seed+uint64(worker), 200)
			for round := 0; round < rounds; round++ {
				change(objects, round)
				runtime.Gosched()
			}
			hashes[worker] = verify(objects)
			all.Store(worker, objects)
		}()
	}
	group.Wait()
	done <- true
	// All are still what they were when the last one was ready.
	for worker, hash := range hashes {
		objects, _ := all.Load(worker)
		if verify(objects.(map[string]*object)) != hash {
			fmt.Println("changed:", worker)
			os.Exit(1)
		}
		fmt.Printf("%016x\n", hash)
	}
}

var all sync.Map
