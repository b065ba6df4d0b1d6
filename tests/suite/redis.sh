# Runs the redis-server "$1" in this directory and its client beside it; the status is the client's.
case $("$1" --version) in
*v=[1-6].*) debug= ;;
*) debug="--enable-debug-command yes" ;; # switched off since version 7
esac
"$1" --port 0 --unixsocket "$PWD/s" --dir "$PWD" --save "" --daemonize no --logfile log $debug &
python3 client.py
status=$?
[ $status = 0 ] || kill $!
wait
exit $status
