/*
 * Memory that a device goes on using after the call that names it, without a reference to its
 * pages: it stays in RAM. The calls are refused, as they are made on descriptors of nothing.
 */
#include "victim.h"
#include <linux/if_xdp.h>
#include <linux/kvm.h>
#include <linux/vfio.h>
#include <linux/vhost.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define KEPT_PAGES 64ul
#define KEPT_BYTES (KEPT_PAGES * PAGE_BYTES)

/* Newer than the headers may be (Linux 6.8): it begins as the older one, and is longer. */
#define SET_MEMORY_REGION2 0x40a0ae49

static char *kept[6];

static void kept_check(void) {
    unsigned char resident[KEPT_PAGES];
    for (size_t i = 0; i < COUNT(kept); i++) {
        CHECK(mincore(kept[i], KEPT_BYTES, resident) == 0);
        for (size_t page = 0; page < KEPT_PAGES; page++)
            CHECK(resident[page] & 1);
        pages_check(kept[i], KEPT_PAGES, i * KEPT_PAGES);
    }
}

static void name_all(void) {
    struct kvm_userspace_memory_region region = {.memory_size = KEPT_BYTES,
                                                 .userspace_addr = (uintptr_t)kept[0]};
    CHECK(ioctl(-1, KVM_SET_USER_MEMORY_REGION, &region) == -1 && errno == EBADF);
    struct kvm_userspace_memory_region longer[5] = {region};
    longer[0].userspace_addr = (uintptr_t)kept[1];
    CHECK(ioctl(-1, SET_MEMORY_REGION2, longer) == -1 && errno == EBADF);
    struct vhost_memory *table =
        calloc(1, sizeof *table + 2 * sizeof(struct vhost_memory_region));
    table->nregions = 2;
    for (int i = 0; i < 2; i++) {
        table->regions[i].memory_size = KEPT_BYTES;
        table->regions[i].userspace_addr = (uintptr_t)kept[2 + i];
    }
    CHECK(ioctl(-1, VHOST_SET_MEM_TABLE, table) == -1 && errno == EBADF);
    free(table);
    struct vfio_iommu_type1_dma_map map = {.argsz = sizeof map,
                                           .vaddr = (uintptr_t)kept[4],
                                           .size = KEPT_BYTES};
    CHECK(ioctl(-1, VFIO_IOMMU_MAP_DMA, &map) == -1 && errno == EBADF);
    struct xdp_umem_reg packets = {.addr = (uintptr_t)kept[5], .len = KEPT_BYTES};
    CHECK(setsockopt(-1, SOL_XDP, XDP_UMEM_REG, &packets, sizeof packets) == -1 && errno == EBADF);
}

int main(int argc, char **argv) {
    note(victim_start(argc, argv));
    ballast_make(40);
    for (size_t i = 0; i < COUNT(kept); i++) {
        kept[i] = pages_map(KEPT_PAGES);
        pages_fill(kept[i], KEPT_PAGES, i * KEPT_PAGES);
    }
    press();
    name_all();
    press();
    kept_check();
    return victim_end();
}
