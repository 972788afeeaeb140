/* The console: boot banner, commands, answers that end in `ok` or `error: <sentence>`. */
#ifndef CONSOLE_H
#define CONSOLE_H

#include "identity.h"

/* Both must outlive the console; `identity` is read only when `state` is IDENTITY_OK. */
void console_init(enum identity_state state, const struct identity *identity);
void console_banner(void);
/* Reads what has been received and executes complete lines. */
void console_poll(void);

#endif
