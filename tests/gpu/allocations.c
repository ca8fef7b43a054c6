/* Writes a line for every driver call of its process that allocates, registers or instantiates.
 *
 * CUDA loads this library into a process whose environment names it in CUDA_INJECTION64_PATH, and calls
 * InitializeInjection (CUPTI's documentation, "Injection"). The lines, each the function's name, are appended to the
 * file that ALLOCATIONS_LOG names. Driver-level, so that what TensorRT does by itself is seen too.
 */
#include <cupti.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int log_file = -1;

static void CUPTIAPI on_call(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
    const CUpti_CallbackData *call = data;
    char line[128];
    size_t length;
    (void)user, (void)domain, (void)id;
    if (call->callbackSite != CUPTI_API_ENTER) return;
    length = strnlen(call->functionName, sizeof line - 1);
    memcpy(line, call->functionName, length);
    line[length] = '\n';
    if (write(log_file, line, length + 1) < 0) abort();
}

static int allocates(const char *name) {
    static const char *const words[] = {"Alloc", "MemCreate", "HostRegister", "GraphInstantiate", "GraphExecUpdate",
                                        "ModuleLoad", "LibraryLoad", "StreamCreate", "EventCreate"};
    for (size_t word = 0; word < sizeof words / sizeof *words; word++)
        if (strstr(name, words[word])) return strstr(name, "Get") == NULL;
    return 0;
}

int InitializeInjection(void) {
    CUpti_SubscriberHandle subscriber;
    const char *path = getenv("ALLOCATIONS_LOG"), *name;
    if (path == NULL || (log_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) < 0) return 0;
    if (cuptiSubscribe(&subscriber, (CUpti_CallbackFunc)on_call, NULL) != CUPTI_SUCCESS) return 0;
    for (CUpti_CallbackId id = 1; id < CUPTI_DRIVER_TRACE_CBID_SIZE; id++)
        if (cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, id, &name) == CUPTI_SUCCESS && allocates(name))
            cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id);
    return 1;
}
