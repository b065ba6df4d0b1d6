/*
 * A virtual machine (KVM) that is there before there is much memory: the kernel goes on to use the memory that
 * it was given, and has a thread of its own in this process (Linux 6.13 and later). Where there is no KVM,
 * only the memory is checked.
 */
#include "victim.h"
#include <linux/kvm.h>
#include <sys/ioctl.h>

#define GUEST_PAGES (4 * MIB_PAGES)
#define COUNTER_PLACE 0x2000

/* incw 0x2000; hlt; jmp to the start: 16-bit code. */
static const unsigned char code[] = {0xff, 0x06, 0x00, 0x20, 0xf4, 0xeb, 0xf9};

static struct {
    int vcpu;
    struct kvm_run *state;
    char *memory;
} guest;

static int guest_make(void) {
    int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    int machine = kvm < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0ul);
    if (machine < 0)
        return 0;
    struct kvm_userspace_memory_region region = {.memory_size = GUEST_PAGES * PAGE_BYTES,
                                                 .userspace_addr = (uintptr_t)guest.memory};
    CHECK(ioctl(machine, KVM_SET_USER_MEMORY_REGION, &region) == 0);
    guest.vcpu = ioctl(machine, KVM_CREATE_VCPU, 0ul);
    CHECK(guest.vcpu >= 0);
    guest.state = mmap(NULL, ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0ul), PROT_READ | PROT_WRITE,
                       MAP_SHARED, guest.vcpu, 0);
    CHECK(guest.state != MAP_FAILED);
    struct kvm_sregs segments;
    CHECK(ioctl(guest.vcpu, KVM_GET_SREGS, &segments) == 0);
    segments.cs.base = segments.cs.selector = 0;
    CHECK(ioctl(guest.vcpu, KVM_SET_SREGS, &segments) == 0);
    struct kvm_regs registers = {.rflags = 2};
    CHECK(ioctl(guest.vcpu, KVM_SET_REGS, &registers) == 0);
    return 1;
}

/* Runs the guest until it has counted once. */
static void guest_count(uint16_t count) {
    CHECK(ioctl(guest.vcpu, KVM_RUN, 0ul) == 0);
    CHECK(guest.state->exit_reason == KVM_EXIT_HLT);
    uint16_t counted;
    memcpy(&counted, guest.memory + COUNTER_PLACE, sizeof counted);
    CHECK(counted == count);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    guest.memory = pages_map(GUEST_PAGES);
    pages_fill(guest.memory, GUEST_PAGES, tag);
    memset(guest.memory, 0, COUNTER_PLACE + PAGE_BYTES);
    memcpy(guest.memory, code, sizeof code);
    int is_there = guest_make();
    for (int i = 1; i <= 4; i++) {
        if (is_there)
            guest_count(i);
        if (i == 1)
            ballast_make(40);
        press();
    }
    size_t first = COUNTER_PLACE / PAGE_BYTES + 1;
    pages_check(guest.memory + first * PAGE_BYTES, GUEST_PAGES - first, tag + first);
    return victim_end();
}
