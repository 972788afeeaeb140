/* What ends a run of the firmware: a fault of the core or a failed assertion. Both print FAULT and reset. */
#ifndef FAULT_H
#define FAULT_H

void fault_handler(void);

#endif
