/* A libnvidia-ml.so.1 with as little in it as a test wants. STATE_DIR holds files with
 * numbers that it reads at each call: "init" (what nvmlInit_v2 answers, default 0) and
 * "count" (GPUs, default 1). It appends to "log" there when it is started and stopped.
 *
 *   -DNO_SHUTDOWN   no nvmlShutdown at all
 *   -DOLDER         memory only by the first structure, fabric only by the second
 *   -DOLDEST        fabric only by the first function
 */
#include <stdio.h>
#include <string.h>

#define OK 0
#define NOT_SUPPORTED 3
#define VERSION_MISMATCH 25

static unsigned number(const char *file, unsigned otherwise) {
    char path[4096];
    unsigned value = otherwise;
    snprintf(path, sizeof path, "%s/%s", STATE_DIR, file);
    FILE *f = fopen(path, "r");
    if (f) {
        if (fscanf(f, "%u", &value) != 1) value = otherwise;
        fclose(f);
    }
    return value;
}

static void note(const char *word) {
    FILE *f = fopen(STATE_DIR "/log", "a");
    if (f) {
        fprintf(f, "%s\n", word);
        fclose(f);
    }
}

static int text(char *out, unsigned length, const char *value) {
    snprintf(out, length, "%s", value);
    return OK;
}

int nvmlInit_v2(void) {
    unsigned code = number("init", 0);
    if (code == 0) note("init");
    return code;
}

#ifndef NO_SHUTDOWN
int nvmlShutdown(void) {
    note("shutdown");
    return OK;
}
#endif

int nvmlSystemGetDriverVersion(char *out, unsigned length) { return text(out, length, "450.51.06"); }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = number("count", 1);
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    static char gpus[16];
    *device = &gpus[index];
    return OK;
}

int nvmlDeviceGetUUID(void *device, char *out, unsigned length) {
    (void)device;
    return text(out, length, "GPU-11111111-0000-0000-0000-000000000000");
}

int nvmlDeviceGetName(void *device, char *out, unsigned length) {
    (void)device;
    return text(out, length, "Old GPU");
}

int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) {
    (void)device;
    *minor = 4;
    return OK;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci) {
    (void)device;
    memset(pci, 0, sizeof *pci);
    strcpy(pci->bus_id, "0000000F:3B:00.0");
    return OK;
}

#ifdef OLDER
struct memory { unsigned long long total, free, used; };

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    (void)device;
    memory->total = 16ull << 30;
    return OK;
}

struct fabric_v2 { unsigned version; unsigned char cluster[16]; unsigned status, clique; unsigned char state; unsigned health; };

int nvmlDeviceGetGpuFabricInfoV(void *device, struct fabric_v2 *fabric) {
    (void)device;
    if (fabric->version != (2u << 24 | sizeof *fabric)) return VERSION_MISMATCH;
    memset(fabric->cluster, 0xab, 16);
    fabric->status = 0;
    fabric->clique = 7;
    fabric->state = 3;
    return OK;
}
#endif

#ifdef OLDEST
struct fabric { unsigned char cluster[16]; unsigned status, clique; unsigned char state; };

int nvmlDeviceGetGpuFabricInfo(void *device, struct fabric *fabric) {
    (void)device;
    memset(fabric, 0, sizeof *fabric);
    fabric->clique = 5;
    fabric->state = 3;
    return OK;
}
#endif
