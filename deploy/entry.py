"""The entry point of `headroom`: from the first moment, Ctrl-C ends the process without a traceback."""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """Ends with 130 after Ctrl-C, which ends the process by itself while the command is still being imported."""
    from deploy import cli

    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        cli.main()
    except KeyboardInterrupt:
        raise SystemExit(cli.INTERRUPTED) from None


if __name__ == "__main__":
    main()
