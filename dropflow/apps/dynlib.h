/*
 * What a shared library implements to be an application of a graph (DynlibApp, DynlibProcApp, DynlibStreamApp).
 *
 * The functions below are looked up by name. A library has init or init2; for DynlibApp and DynlibProcApp run or run2,
 * for DynlibStreamApp data_written or drop_completed. A result other than 0 fails the attempt.
 *
 * Each attempt calls init and then run, in a worker process. What the structures point to exists until the attempt is
 * over. A library keeps what it needs between the calls in `data`.
 */
#ifndef DROPFLOW_DYNLIB_H
#define DROPFLOW_DYNLIB_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* States of drops. */
typedef enum {
	DLG_INITIALIZED = 0,
	DLG_WRITING = 1,
	DLG_COMPLETED = 2,
	DLG_ERROR = 3,
	DLG_EXPIRED = 4,
	DLG_DELETED = 5
} drop_status;

/* States of applications, for done(). */
typedef enum {
	DLG_APP_NOT_RUN = 0,
	DLG_APP_RUNNING = 1,
	DLG_APP_FINISHED = 2,
	DLG_APP_ERROR = 3
} app_status;

/* An input. read() copies at most n of the next bytes, and returns how many: 0 at the end. */
typedef struct {
	char *uid;
	char *oid;
	char *name;
	drop_status status;
	size_t (*read)(char *buf, size_t n);
} dlg_input_info;

/* An input whose bytes come to data_written() while they are being written. */
typedef struct {
	char *uid;
	char *oid;
	char *name;
} dlg_streaming_input_info;

/* An output. write() appends n bytes, and returns how many were written: less than n after an error. */
typedef struct {
	char *uid;
	char *oid;
	char *name;
	size_t (*write)(const char *buf, size_t n);
} dlg_output_info;

typedef struct {
	char *appname;
	char *uid;
	char *oid;
	int *ranks; /* position of the drop in the constructs around it, outermost first */
	unsigned int n_ranks;
	dlg_input_info *inputs;
	unsigned int n_inputs;
	dlg_streaming_input_info *streaming_inputs;
	unsigned int n_streaming_inputs;
	dlg_output_info *outputs;
	unsigned int n_outputs;
	void (*running)(void);
	void (*done)(app_status status);
	void *data;
} dlg_app_info;

/* params ends with NULL; each item is a pair of texts, the name and the value of a field of the node. */
int init(dlg_app_info *app, const char ***params);
int run(dlg_app_info *app);

/* Of DynlibStreamApp: the next bytes of a streaming input, and its end. */
void data_written(dlg_app_info *app, const char *uid, const char *data, size_t n);
void drop_completed(dlg_app_info *app, const char *uid, drop_status status);

/*
 * Instead of init and run, for libraries that use Python's C API:
 *   int init2(dlg_app_info *app, PyObject *params);   params is a dict
 *   PyObject *run2(dlg_app_info *app);                an exception fails the attempt, anything false does not
 */

#ifdef __cplusplus
}
#endif

#endif
