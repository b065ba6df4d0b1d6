# make build   the command at target/release/zpager
# make demo    GNU sort and CPython, free and in a quarter of their memory
# make test    everything that is checked; make test-long the long suites besides
# make reproduce docs/reproduction.md: the papers' measurements, in the simulator; traces are kept
#              in TRACES, if that is given, and not recorded again
# make guest-test a machine of Debian's own kernel, emulated, that swaps to zpager's device, and what
#              goes wrong then
# make guest-bench docs/guest.md: there, programs that swap to it, to a disk, to zswap and to zram
# make install the command at $(PREFIX)/bin/zpager, zpager-swap beside it, and systemd's units in
#              $(PREFIX)/lib/systemd/system; below $(DESTDIR), if that is given
# make install-files the same of what was built before

CARGO ?= cargo
PREFIX ?= /usr/local
ZPAGER = target/release/zpager
UNITS = $(DESTDIR)$(PREFIX)/lib/systemd/system

# Seconds that each fuzz target runs.
FUZZ_SECONDS ?= 10

.PHONY: build demo test test-long lint unit end-to-end fuzz bench-smoke reproduce guest-test \
	guest-bench install install-files packages

build:
	$(CARGO) build --release --locked

demo: build
	scripts/packages demo/packages
	python3 demo/demo.py

test: packages lint unit end-to-end fuzz bench-smoke

# Those that are marked as ignored.
test-long: packages build
	$(CARGO) test --locked --package zpager-tests --no-fail-fast -- --ignored

packages:
	scripts/packages tests/packages

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --exclude zpager-agent --all-targets -- -D warnings
	$(CARGO) clippy --locked --package zpager-agent -- -D warnings
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --locked --workspace --no-deps

unit:
	$(CARGO) test --locked --workspace --exclude zpager-tests --exclude zpager-agent --no-fail-fast

end-to-end: build
	$(CARGO) test --locked --package zpager-tests --no-fail-fast -- --show-output

fuzz:
	scripts/fuzz $(FUZZ_SECONDS)

bench-smoke: build
	$(ZPAGER) bench run --workload faults-random-synthetic,sor --rivals none,zpager --runs 1 --scale 0.25

reproduce: packages build
	scripts/packages scripts/reproduction/packages
	python3 scripts/reproduce.py $(ZPAGER) $(TRACES)

guest-test: build
	scripts/packages scripts/guest/packages
	python3 scripts/guest $(ZPAGER) target/guest

guest-bench: build
	scripts/packages scripts/guest/packages
	python3 scripts/guest $(ZPAGER) target/guest bench
	python3 scripts/guest $(ZPAGER) target/guest bench --kernel newer

install: build
	$(MAKE) --no-print-directory install-files

install-files:
	install -D -m 755 $(ZPAGER) $(DESTDIR)$(PREFIX)/bin/zpager
	install -D -m 755 scripts/zpager-swap $(DESTDIR)$(PREFIX)/bin/zpager-swap
	install -d $(UNITS)
	for unit in zpager-device.service zpager-device.socket zpager-swap.service; do \
		sed 's,@BINDIR@,$(PREFIX)/bin,' scripts/systemd/$$unit >$(UNITS)/$$unit && \
			chmod 644 $(UNITS)/$$unit || exit 1; \
	done
