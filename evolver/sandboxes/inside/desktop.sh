#!/bin/bash
# The agent's side of the screen: the session bus, the window manager, the desktop with its icons.
mkdir -p -m 700 "$XDG_RUNTIME_DIR"
dbus-daemon --session --address="$DBUS_SESSION_BUS_ADDRESS" --nofork --nopidfile --nosyslog &
while [ ! -S /tmp/.X11-unix/X0 ] || [ ! -S "$XDG_RUNTIME_DIR/bus" ]; do sleep 0.02; done
# The file manager dies of a rename through its dialog; without it there would be no desktop any more.
exec openbox --sm-disable --startup "bash -c 'while :; do pcmanfm --desktop; sleep 0.2; done'"
