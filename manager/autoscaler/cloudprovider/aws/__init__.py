"""Auto Scaling groups of AWS, asked through boto3."""

NAME = "aws"
